//! A path between two adapters as the wire of both.

use net::lan::frame::Mac;
pub use net::osa::cable::{Cable, CableOptions, DELAY_MAX};

use crate::path::Path;

/// One end of a cable between two adapters, at a port with this MAC address: the path is the cable, and whoever has its other end makes the other. So adapters in different
/// processes reach each other without a network interface, and without any right.
///
/// # Panics
/// If the path has several queues one way.
pub fn cable(path: Path, mac: Mac, options: CableOptions) -> Cable {
    let (halves, membership, _) = path.into_parts();
    Cable::new(halves, Box::new(membership), mac, options)
}
