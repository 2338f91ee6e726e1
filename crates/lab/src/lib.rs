//! `lab`: see ARCHITECTURE.md.
