"""Tests of the tasks that embed and rank."""
