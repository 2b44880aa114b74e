"""Heat shock of three made-up strains: a whole evidence setting outside vcloop (synthetic numbers)."""
