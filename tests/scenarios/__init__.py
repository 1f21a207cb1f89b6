"""Transcripts: which records are written, by whom and in which order, in the life of a job."""
