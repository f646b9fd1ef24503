"""The program as files: text (`.ir`), pictures (`.dot`) and the reference's protobuf (`.pb`)."""
