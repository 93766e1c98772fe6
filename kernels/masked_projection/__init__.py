"""Triton kernels of masked-language modelling: vocabulary projection and cross-entropy."""
