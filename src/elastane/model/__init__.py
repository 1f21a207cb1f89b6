"""Nouns of elastane: ids, specs, records, plans and errors. Pure data, no behaviour beyond validation."""
