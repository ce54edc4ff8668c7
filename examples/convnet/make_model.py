#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports a convolutional classifier with random weights from PyTorch.

    make_model.py convnet.onnx [--seed N]

Input `image` (batch x 3 x 224 x 224, batch symbolic), output `scores` (batch x 1000). It has what such networks are made
of: a stem with a pooling, residual blocks, inverted residual blocks whose middle convolution is depthwise, a block
of grouped convolutions, batch norms (which the exporter folds into the convolutions), ReLU, SiLU and clip.
"""

import argparse

import torch
from torch import nn


def convolution(inputs, outputs, size, stride=1, groups=1, activation=None):
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class Residual(nn.Module):
    """`body`, what goes around it, and what is done to their sum."""

    def __init__(self, body, shortcut=None, activation=None):
        super().__init__()
        self.body, self.shortcut = body, shortcut or nn.Identity()
        self.activation = activation() if activation else nn.Identity()

    def forward(self, x):
        return self.activation(self.body(x) + self.shortcut(x))


def basic(inputs, outputs):
    """Two convolutions of 3 x 3."""
    body = nn.Sequential(convolution(inputs, outputs, 3, activation=nn.ReLU), convolution(outputs, outputs, 3))
    shortcut = convolution(inputs, outputs, 1) if inputs != outputs else None
    return Residual(body, shortcut, nn.ReLU)


def inverted(inputs, outputs, size=3, stride=1, activation=nn.SiLU):
    """Wide in the middle, where each channel is convolved by itself."""
    wide = 4 * inputs
    body = nn.Sequential(convolution(inputs, wide, 1, activation=activation),
                         convolution(wide, wide, size, stride, groups=wide, activation=activation),
                         convolution(wide, outputs, 1))
    return Residual(body) if inputs == outputs and stride == 1 else body


def grouped(inputs, outputs, stride, groups=4):
    """Narrow in the middle, where groups of channels are convolved."""
    body = nn.Sequential(convolution(inputs, 128, 1, activation=nn.ReLU),
                         convolution(128, 128, 3, stride, groups, nn.ReLU), convolution(128, outputs, 1))
    return Residual(body, convolution(inputs, outputs, 1, stride), nn.ReLU)


def make_network(seed):
    torch.manual_seed(seed)
    network = nn.Sequential(
        convolution(3, 32, 3, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1),
        basic(32, 64), basic(64, 64),
        inverted(64, 96, stride=2), inverted(96, 96),
        grouped(96, 160, 2), inverted(160, 160, activation=nn.ReLU6),
        inverted(160, 256, 5, 2), convolution(256, 512, 1, activation=nn.ReLU6),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    # Statistics that are not 0 and 1, so that folding them is seen.
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.3, 0.6)
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    return network.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="the .onnx file to write")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    network = make_network(options.seed)
    torch.onnx.export(network, (torch.zeros(2, 3, 224, 224),), options.output, input_names=["image"],
                      output_names=["scores"], opset_version=17, dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
                      dynamo=False)
    count = sum(parameter.numel() for parameter in network.parameters())
    print(f"{options.output}: {count / 1e6:.1f} million weights")


if __name__ == "__main__":
    main()
