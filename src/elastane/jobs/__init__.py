"""Jobs as records in the store: create them, find them, ask changes of them."""
