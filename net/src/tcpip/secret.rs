//! Numbers that others must not guess: sequence numbers and ports.

use std::hash::{DefaultHasher, Hash, Hasher};

/// What a stack's choices are made of. With the same secret it makes the same choices.
#[derive(Clone, Copy)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// A number for this, which nobody can guess without the secret (RFC 6528 3, RFC 6056 3.3.3).
    pub(super) fn number(&self, of: impl Hash) -> u64 {
        // SipHash, in front of whose input stands the secret.
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.0);
        of.hash(&mut hasher);
        hasher.finish()
    }
}

/// Shows nothing of it.
impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}
