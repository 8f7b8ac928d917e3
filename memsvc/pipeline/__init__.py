"""Work that spans several stores: import, embedding, the worker."""
