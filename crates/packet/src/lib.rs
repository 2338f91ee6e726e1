//! `packet`: see ARCHITECTURE.md.
