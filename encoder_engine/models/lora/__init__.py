"""Low-rank adapters (LoRA): trained, merged, and saved as peft does."""
