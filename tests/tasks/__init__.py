"""Tests of fine-tuning tasks."""
