//! `link`: see ARCHITECTURE.md.
