"""SGLang's command line as data: which flags a version has, and how intent becomes argv and environment."""
