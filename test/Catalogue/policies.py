# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flags that programs of this folder are explained and run with."""

# What fusing may change of the numbers, where a program asks for that.
REQUANTISE, ZERO, LISTS = ["--casts", "requantise"], ["--masked-rows", "zero"], ["--thresholds", "list=16"]
POLICIES = {
    **{f"policies_{name}": REQUANTISE for name in
       ["scaled_by_the_largest", "scaled_by_a_clamped_largest", "shared_exponent", "attention_bf16", "attention_f8",
        "softmax_rounded_after", "integer_product"]},
    **{f"policies_{name}": ZERO for name in ["masked_rows", "masked_minimum"]},
    **{f"thresholds_{name}": LISTS for name in ["min_p", "min_p_of_logits", "shares_above", "weights_near_the_minimum"]},
}
