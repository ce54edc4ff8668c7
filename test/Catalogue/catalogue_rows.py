# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rows of the catalogue of cascades from the field, and what of them the language cannot say, with the reason."""

ROWS = dict(enumerate("""
safe softmax|attention, grouped heads|merge of split attentions|decoding over a latent|biased attention|soft-capped attention
attention sink, softmax plus one|differential attention|sigmoid attention|normalised linear attention|gated linear recurrences
stabilised exponential gating|stick-breaking attention|gated attention with two biases|invariant point attention
attention backward|normalised queries and keys|entropy and largest probability of attention|cross-entropy and its extras
linear cross-entropy|distillation|Jensen-Shannon divergence|total variation|contrastive loss over rows and columns
log-probability, entropy and divergence of a policy|supervised contrastive and margin softmax|forward recurrence of a chain
root mean square norm and product|layer norm statistics|layer norm and product|group, instance and batch norm|norm backward
min-max scaling and sum|normalise and dot|gradient clipping and trust ratio|quantise rows, then a product
norm with the scale of its quantisation|block-scaled quantisation|asymmetric quantisation|ternary weights
gated unit and quantisation|softmax, then the best|the best, then softmax|grouped sigmoid routing|load balance|sampling by noise
log-softmax and beams|min-p|top-p|residual of a rejection|nearest neighbours|variance and its errors|skewness and kurtosis
covariance, correlation, regression|importance weights|mixture of Gaussians|kernel regression, mean shift|entropic transport
clustering step|moment of inertia|gyration tensor, angular momentum|Boltzmann averages|free-energy perturbation
best paths, soft alignment|alpha compositing|chi-square and G-test|quantiles and trimmed means|gated loudness
log-likelihood ratios|exponential averages
""".strip().replace("\n", "|").split("|"), 1))

SCAN = "a recurrence along the stream whose every step is a result: needs a scan"
# Row -> what has no program, and why.
OUTSIDE = {
    11: SCAN + ", with matrices as its states",
    12: SCAN + ", over (max, +)",
    13: SCAN + ", of products from the right",
    27: "the steps after each other: " + SCAN,
    49: "the whole of it: no fixed number of bounded passes is exact (the median is a case of it); of the k best it is sayable",
    64: "the steps after each other: " + SCAN,
    65: SCAN + ", of products",
    67: "a quantile at a share of the length: order statistics, no bounded state in any fixed number of passes; of the k best it is sayable",
    69: "largest and smallest of the walk: " + SCAN,
    70: SCAN,
}
