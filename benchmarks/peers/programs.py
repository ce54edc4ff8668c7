# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The workloads of benchmarks/suite as users of an array library write them: once for all libraries.

A program is a function of the library `f` (torch_library.py, jax_library.py) and the inputs in the order of the `.fold`
file; it returns its outputs in that order. `f` has names that all libraries share for what each has an operation of
its own for (softmax, layer_norm, attention), so that a peer is timed on its best path, not on ours.
"""

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def attention(f, q, k, v):
    return [f.attention(q, k, v, causal=False)]


@program
def attention_causal(f, q, k, v):
    return [f.attention(q, k, v, causal=True)]


@program
def decode(f, q, k, v):
    b, h, d = q.shape
    groups = k.shape[1]
    shared = q.reshape(b, groups, h // groups, d)
    return [f.attention(shared, k, v, causal=False).reshape(b, h, v.shape[-1])]


@program
def latent_decode(f, q, c):
    p = f.softmax(f.matmul(q, f.transpose(c)) * 192 ** -0.5)
    return [f.matmul(p, c[..., :512])]


def best_of_softmax(f, logits, k):
    weight, expert = f.topk(f.softmax(logits), k)
    return weight, expert


@program
def routing_top1(f, h, w):
    return list(best_of_softmax(f, f.matmul(h, w), 1))


def renormalised(f, h, w, k):
    weight, expert = best_of_softmax(f, f.matmul(h, w), k)
    return [weight / f.sum(weight, keep=True), expert]


@program
def routing_top6(f, h, w):
    return renormalised(f, h, w, 6)


@program
def routing_top8(f, h, w):
    return renormalised(f, h, w, 8)


@program
def routing_grouped(f, h, w, bias, scale):
    tokens = h.shape[0]
    score = f.sigmoid(f.matmul(h, w.reshape(h.shape[1], 256)))
    choice = (score + bias.reshape(256)).reshape(tokens, 8, 32)
    pair, _ = f.topk(choice, 2)
    _, group = f.topk(f.sum(pair), 4)
    masked = f.keep_groups(choice, group).reshape(tokens, 256)
    _, expert = f.topk(masked, 8)
    own = f.take(score, expert)
    return [own / (f.sum(own, keep=True) + 1e-20), expert]


@program
def softmax_top8(f, x):
    return list(best_of_softmax(f, x, 8))


@program
def quantised_product(f, x, w, ws):
    s = f.max(f.abs(x), keep=True)
    q = f.int8(x * (127 / s))
    return [f.int_product(q, w) * (s / 127) * ws]


@program
def layernorm_product(f, x, gamma, beta, w):
    return [f.matmul(f.layer_norm(x, gamma, beta, 1e-5), w)]


@program
def rmsnorm_product(f, x, gamma, w):
    return [f.matmul(f.rms_norm(x, gamma, 1e-6), w)]


@program
def residual_layernorm_gelu(f, x, res, gamma, beta, w, bias):
    h = x + res
    return [h, f.gelu(f.matmul(f.layer_norm(h, gamma, beta, 1e-5), w) + bias)]


@program
def residual_rmsnorm_swiglu(f, x, res, gamma, w, u):
    h = x + res
    a = f.rms_norm(h, gamma, 1e-6)
    return [h, f.silu(f.matmul(a, w)) * f.matmul(a, u)]


@program
def softmax(f, x):
    return [f.softmax(x)]


@program
def log_softmax(f, x):
    return [f.log_softmax(x)]


@program
def logsumexp(f, x):
    return [f.logsumexp(x)]


@program
def entropy(f, x):
    log_p = f.log_softmax(x)
    return [-f.sum(f.exp(log_p) * log_p)]


@program
def variance(f, x):
    return list(f.mean_and_variance(x))


@program
def layernorm(f, x, gamma, beta):
    return [f.layer_norm(x, gamma, beta, 1e-5)]


@program
def groupnorm(f, x, gamma, beta):
    return [f.group_norm(x, gamma, beta, 1e-5)]


@program
def rmsnorm(f, x, gamma):
    return [f.rms_norm(x, gamma, 1e-6)]


@program
def rmsnorm_int8(f, x, gamma):
    y = f.rms_norm(x, gamma, 1e-6)
    s = f.max(f.abs(y), keep=True)
    return [f.int8(y * (127 / s)), (s / 127)[..., 0]]


@program
def cross_entropy(f, x, label):
    return [f.cross_entropy(x, label)]


@program
def kl_divergence(f, a, b):
    log_p, log_q = f.log_softmax(a), f.log_softmax(b)
    return [f.sum(f.exp(log_p) * (log_p - log_q))]


@program
def kurtosis(f, x):
    squared = (x - f.mean(x, keep=True)) ** 2
    return [f.mean(squared ** 2) / f.mean(squared) ** 2]


@program
def token_statistics(f, x, ref, label):
    log_p, log_r = f.log_softmax(x), f.log_softmax(ref)
    p = f.exp(log_p)
    return [f.take(log_p, label[:, None])[:, 0], -f.sum(p * log_p), f.sum(p * (log_p - log_r))]


@program
def renyi_entropy(f, x):
    return [-f.log(f.sum(f.softmax(x) ** 2))]


@program
def moment_of_inertia(f, mass, x):
    m = f.abs(mass)[..., None]
    centre = f.sum(m * x, axis=-2) / f.sum(m, axis=-2)
    return [f.sum(f.sum(m * (x - centre[..., None, :]) ** 2)), centre]


@program
def radius_of_gyration(f, mass, x, y, z):
    m = f.abs(mass)
    total = f.sum(m, keep=True)
    squared = sum((one - f.sum(m * one, keep=True) / total) ** 2 for one in (x, y, z))
    return [f.sqrt(f.sum(m * squared) / total[..., 0])]


@program
def covariance(f, x, y):
    return [f.mean((x - f.mean(x, keep=True)) * (y - f.mean(y, keep=True)))]


@program
def regression(f, x, y):
    mx, my = f.mean(x, keep=True), f.mean(y, keep=True)
    dx, dy = x - mx, y - my
    sxy, sxx, syy = f.sum(dx * dy), f.sum(dx * dx), f.sum(dy * dy)
    slope = sxy / sxx
    intercept = my[..., 0] - slope * mx[..., 0]
    rest = f.sum((y - intercept[..., None] - slope[..., None] * x) ** 2)
    return [sxy / f.sqrt(sxx * syy), slope, intercept, 1.0 - rest / syy]


@program
def boltzmann(f, e, beta):
    s = -beta[:, None] * e[None, :]
    p = f.softmax(s)
    energy = f.sum(p * e)
    return [f.logsumexp(s), energy, beta ** 2 * f.sum(p * (e - energy[:, None]) ** 2)]


@program
def kernel_regression(f, q, x, y):
    s = f.matmul(q, f.transpose(x)) - 0.5 * f.sum(q * q, keep=True) - 0.5 * f.sum(x * x)[None, :]
    return [f.matmul(f.softmax(s), y)]
