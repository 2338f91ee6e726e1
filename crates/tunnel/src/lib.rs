//! `tunnel`: see ARCHITECTURE.md.
