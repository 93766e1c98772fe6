"""Work that cases share: operations, tokenizing, padded batches, drop-ins, and their gates."""
