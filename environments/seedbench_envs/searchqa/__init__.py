"""Search-QA: seven question-answering sets, answered by searching a corpus of passages."""
