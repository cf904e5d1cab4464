//! The protocol of `siga send` and `siga receive`, and their display of progress.
//!
//! The sender's messages are the bytes of the file, in order. The receiver answers with how many bytes it
//! has written so far, eight bytes each time, when there is room for it; after the last it answers in any
//! case. The end of the file is the sender's end of the path in good order.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use siga::{Name, UserData};

use crate::outcome::Outcome;
use crate::output::{Output, can_draw, print_json, say};

/// User data with which the sender connects, so that a receiver recognizes it.
pub const GREETING: UserData = *b"siga send 1\0\0\0\0\0";

/// Bytes of the file that go as one message.
pub const CHUNK_BYTES: usize = 256 << 10;

/// How a transfer ended, as `--json` prints it.
#[derive(Debug, serde::Serialize)]
struct Delivery {
    /// The guest at the other end.
    peer: String,
    /// Bytes that the receiver has written.
    delivered_bytes: u64,
    /// True if these are all bytes.
    complete: bool,
}

/// Ends a transfer `to` or `from` a peer. If it is not complete, the error says why.
pub fn end(
    output: Output,
    (way, peer): (&str, Name),
    delivered_bytes: u64,
    ended: Result<(), Outcome>,
) -> Result<(), Outcome> {
    if output.json {
        let (peer, complete) = (peer.to_string(), ended.is_ok());
        let printed = print_json(&Delivery { peer, delivered_bytes, complete });
        return ended.and(printed);
    }
    ended.inspect(|()| say(format_args!("{delivered_bytes} bytes delivered {way} {peer}")))
}

/// A progress bar if it can be drawn, and nothing otherwise.
pub fn progress(total_bytes: Option<u64>) -> ProgressBar {
    let target = if can_draw() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(total_bytes, target);
    let template = match total_bytes {
        Some(_) => "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}",
        None => "{spinner} {bytes} {binary_bytes_per_sec}",
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// How far the receiver says it is, if this message says so.
pub fn written(message: &[u8]) -> Option<u64> {
    message.try_into().ok().map(u64::from_le_bytes)
}
