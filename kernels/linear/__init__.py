"""The dense layer; on a GPU it is the vendor library's."""
