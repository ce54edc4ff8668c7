# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import os

import lit.formats

config.name = "refold"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".fold", ".mlir", ".test"]
# Inputs of other tests; broken files are run by utils/check_broken, the catalogue by its script.
config.excludes = ["Inputs", "broken", "Catalogue"]
config.test_source_root = os.path.join(config.refold_source, "test")
config.test_exec_root = config.refold_output

# What compiles or predicts for a processor that this one is not. An AVX2 machine has one target less to test:
# `lit --param cpu=avx2` runs what such a machine would, on any other.
cpu = lit_config.params.get("cpu")
try:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
        if " avx512f " in flags and cpu != "avx2":
            config.available_features.add("avx512")
        # Kernels ask Linux for the registers of tiles; before 5.16 it has none to give.
        if " amx_int8" in flags and " amx_bf16" in flags and " avx512_bf16" in flags:
            config.available_features.add("tiles")
except OSError:
    pass

# One name must not be the front of another: substitutions are made in this order.
config.substitutions += [
    ("%refold-opt", os.path.join(config.refold_binaries, "refold-opt")),
    ("%refold", os.path.join(config.refold_binaries, "refold")),
    ("%FileCheck", os.path.join(config.llvm_tools, "FileCheck")),
    ("%python", config.refold_python),
    ("%examples", os.path.join(config.refold_source, "examples")),
]
config.environment["PATH"] = os.pathsep.join(
    [config.refold_binaries, config.llvm_tools, config.environment["PATH"]])
config.environment["FILECHECK_OPTS"] = "-enable-var-scope"
# What was measured or kept on this machine decides no test.
config.environment["REFOLD_CACHE_DIR"] = ""
for name in ("REFOLD_CPU", "HOME", "OMP_NUM_THREADS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
if cpu:
    config.environment["REFOLD_CPU"] = cpu
