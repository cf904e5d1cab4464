//! What the tests of several files need.

use siga::{Guest, Path, PathOptions};

/// Both ends of a path from `client` to `server`, which may be the same guest.
pub fn joined(client: &Guest, server: &Guest, options: &PathOptions) -> (Path, Path) {
    let connecting = client.start_connecting(server.name().as_str(), options).unwrap();
    let accepted = server.accept_with(options).unwrap();
    (client.complete(connecting).unwrap(), accepted)
}
