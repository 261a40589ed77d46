//! Halo exchange.
