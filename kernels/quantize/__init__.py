"""The float64 reference of quantization, which gives each row bytes and a scale."""
