//! A message that is built in memory lent to the receiver, and read where it lies.

use siga::host::{Embedded, System};
use siga::in_place::Incoming;
use siga::{Guest, PathOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Embedded::start(System::open())?;
    let (camera, screen) =
        (Guest::attach_embedded(&host, "CAMERA")?, Guest::attach_embedded(&host, "SCREEN")?);
    let connecting = camera.start_connecting("SCREEN", &PathOptions::default())?;
    let mut screen_path = screen.accept()?;
    let mut camera_path = camera.complete(connecting)?;

    // Eight megabytes, written once, by us, where the receiver can read them.
    let sender = camera_path.sender();
    let mut picture = sender.claim(b"frame 1", 8 << 20)?;
    let pixels = sender.claimed(&mut picture).expect("claimed just now");
    for (row, pixels) in pixels.chunks_mut(4096).enumerate() {
        pixels.fill(row as u8);
    }
    sender.commit(picture)?;

    // The receiver has the head at once, and copies only what it wants to see.
    let receiver = screen_path.receiver();
    let Some(Incoming::Announced(mut picture)) = receiver.poll(0)? else {
        unreachable!("a large message is announced")
    };
    let mut rows = [0; 2 * 4096];
    assert_eq!(receiver.pull(&mut picture, &mut rows)?, rows.len());
    println!("{}: rows {} and {}", String::from_utf8_lossy(picture.head()), rows[0], rows[4096]);
    receiver.release(picture)?;
    Ok(())
}
