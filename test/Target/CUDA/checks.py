# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the tests of this folder run their checks and report them."""

import concurrent.futures
import os
import subprocess


def named(case):
    """A case without what has no short name."""
    return [str(part) for part in case if isinstance(part, (str, int, os.PathLike))]


def run(checks, skipped=0):
    """Every (function, argument, ...) once; the exit code."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (check, *case), done in [(c, pool.submit(*c)) for c in checks]:
            try:
                done.result()
            except (AssertionError, RuntimeError, KeyError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"{check.__name__} {named(case)}: {error}")
    print(f"{len(checks) - failed} passed, {failed} failed, {skipped} skipped")
    return failed > 0
