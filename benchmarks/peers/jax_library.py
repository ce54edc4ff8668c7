# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs.py needs, in JAX."""

import jax
import jax.numpy as jnp

exp, log, sqrt, abs, matmul = jnp.exp, jnp.log, jnp.sqrt, jnp.abs, jnp.matmul
sigmoid, silu = jax.nn.sigmoid, jax.nn.silu


def transpose(x):
    return jnp.swapaxes(x, -1, -2)


def softmax(x):
    return jax.nn.softmax(x, -1)


def log_softmax(x):
    return jax.nn.log_softmax(x, -1)


def logsumexp(x):
    return jax.nn.logsumexp(x, -1)


def attention(q, k, v, causal):
    scores = jnp.einsum("...md,...nd->...mn", q, k) * q.shape[-1] ** -0.5
    if causal:
        at = jnp.arange(q.shape[-2])[:, None] >= jnp.arange(k.shape[-2])[None, :]
        scores = jnp.where(at, scores, -jnp.inf)
    return jnp.einsum("...mn,...ne->...me", jax.nn.softmax(scores, -1), v)


def sum(x, axis=-1, keep=False):
    return jnp.sum(x, axis, keepdims=keep)


def mean(x, keep=False):
    return jnp.mean(x, -1, keepdims=keep)


def max(x, keep=False):
    return jnp.max(x, -1, keepdims=keep)


def mean_and_variance(x):
    return jnp.mean(x, -1), jnp.var(x, -1)


def layer_norm(x, gamma, beta, epsilon):
    return (x - mean(x, True)) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + epsilon) * gamma + beta


def group_norm(x, gamma, beta, epsilon):
    scale = jax.lax.rsqrt(jnp.var(x, (-2, -1), keepdims=True) + epsilon)
    return (x - jnp.mean(x, (-2, -1), keepdims=True)) * scale * gamma[..., None] + beta[..., None]


def rms_norm(x, gamma, epsilon):
    return x * jax.lax.rsqrt(mean(x * x, True) + epsilon) * gamma


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def topk(x, k):
    return jax.lax.top_k(x, k)


def take(x, at):
    return jnp.take_along_axis(x, at, -1)


def keep_groups(choice, group):
    keep = (group[..., None, :] == jnp.arange(choice.shape[-2])[:, None]).any(-1)
    return jnp.where(keep[..., None], choice, -jnp.inf)


def int8(x):
    return jnp.round(x).astype(jnp.int8)


def int_product(q, w):
    return jnp.matmul(q, w, preferred_element_type=jnp.int32)


def cross_entropy(x, label):
    return -jnp.take_along_axis(jax.nn.log_softmax(x, -1), label[:, None], -1)[:, 0]
