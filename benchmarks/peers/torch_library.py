# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What programs.py needs, in PyTorch."""

import torch
from torch.nn import functional

exp, log, sqrt, abs, sigmoid = torch.exp, torch.log, torch.sqrt, torch.abs, torch.sigmoid
matmul, silu = torch.matmul, functional.silu


def transpose(x):
    return x.transpose(-1, -2)


def softmax(x):
    return torch.softmax(x, -1)


def log_softmax(x):
    return torch.log_softmax(x, -1)


def logsumexp(x):
    return torch.logsumexp(x, -1)


def attention(q, k, v, causal):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def sum(x, axis=-1, keep=False):
    return torch.sum(x, axis, keepdim=keep)


def mean(x, keep=False):
    return torch.mean(x, -1, keepdim=keep)


def max(x, keep=False):
    return torch.amax(x, -1, keepdim=keep)


def mean_and_variance(x):
    variance, mean_ = torch.var_mean(x, -1, correction=0)
    return mean_, variance


def layer_norm(x, gamma, beta, epsilon):
    return functional.layer_norm(x, (x.shape[-1],), gamma, beta, epsilon)


def group_norm(x, gamma, beta, epsilon):
    b, g, c, p = x.shape
    y = functional.group_norm(x.reshape(b, g * c, p), g, gamma.reshape(-1), beta.reshape(-1), epsilon)
    return y.reshape(b, g, c, p)


def rms_norm(x, gamma, epsilon):
    return functional.rms_norm(x, (x.shape[-1],), gamma, epsilon)


def gelu(x):
    return functional.gelu(x)


def topk(x, k):
    return torch.topk(x, k, -1)


def take(x, at):
    return torch.gather(x, -1, at)


def keep_groups(choice, group):
    keep = torch.zeros(choice.shape[:-1], dtype=torch.bool).scatter(-1, group, True)
    return choice.masked_fill(~keep[..., None], float("-inf"))


def int8(x):
    return torch.round(x).to(torch.int8)


def int_product(q, w):
    return torch._int_mm(q, w)


def cross_entropy(x, label):
    return functional.cross_entropy(x, label, reduction="none")
