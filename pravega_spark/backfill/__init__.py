"""Files into streams and streams into files, exactly once by job id. See the README of this folder."""
