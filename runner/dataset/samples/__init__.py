"""Samples that are computed one by one: by functions of the user, from several datasets, or in batches of any form."""
