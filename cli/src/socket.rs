//! Where the host is.

use std::path::PathBuf;

use crate::outcome::Outcome;

/// The option that says where the host is.
#[derive(Clone, Debug, clap::Args)]
pub struct Socket {
    /// Where the host listens [default: /run/siga.sock for root, $XDG_RUNTIME_DIR/siga.sock otherwise]
    #[arg(long, value_name = "PATH", env = "SIGA_SOCKET")]
    socket: Option<PathBuf>,
}

impl Socket {
    /// The place that was given, or the usual one.
    pub fn path(&self) -> Result<PathBuf, Outcome> {
        match &self.socket {
            Some(socket) => Ok(socket.clone()),
            None => siga::default_socket().map_err(Outcome::no),
        }
    }
}
