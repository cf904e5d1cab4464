//! Measures what it costs to receive frames of 64 bytes by an `AF_XDP` wire: from one end of a veth to the other, in networks of
//! this program's own. The sender is on processor 0, the receiver on processor 1. Needs root.
//!
//! `cargo run --release --package siga-port --example xdp_receive [SECONDS [PAUSE_US]]`
//!
//! With a pause the receiver polls that often only, as one that has other things to do, and finds more at once.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use net::lan::frame::Mac;
use net::osa::wire::{Carrier, Wire};
use os::macvtap::OwnNetwork;
use os::namespace::join_network;
use os::processor::{now_ns, pin, thread_ns};
use os::xdp::{XdpOptions, XdpSocket};
use port::link::Links;
use port::wires::{WireOptions, XdpWire};

const TO: Mac = Mac([2, 0, 0, 0, 1, 9]);
const FRAME_BYTES: usize = 64;
const BATCH: usize = 64;

fn main() {
    let number = |at| std::env::args().nth(at).and_then(|number| number.parse().ok());
    let (seconds, pause_us) = (number(1).unwrap_or(2), number(2).unwrap_or(0));
    let measured = OwnNetwork::make(|| {
        measure(Duration::from_secs(seconds), Duration::from_micros(pause_us));
        Ok(())
    });
    measured.expect("a network");
}

fn measure(time: Duration, pause: Duration) {
    let (there, ()) = OwnNetwork::make(|| Ok(())).expect("a network");
    let mut links = Links::open().expect("netlink");
    links.add_veth("siga0", "peer0", there.as_fd()).expect("a veth");
    links.set_up("siga0", Mac([2, 0, 0, 0, 1, 1]), 1500, &[]).expect("an interface");
    let options = WireOptions { mac: Some(TO), ..WireOptions::default() };
    let mut wire = XdpWire::open("siga0", &options).expect("a wire");
    let ends = AtomicBool::new(false);
    let path = format!("/proc/self/fd/{}", there.as_fd().as_raw_fd());
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            join_network(Path::new(&path)).expect("the other network");
            send(&ends)
        });
        pin(1).expect("processor 1");
        while wire.look().0 != Carrier::Up {
            std::thread::yield_now();
        }
        let (mut frames, mut bytes, mut busy_ns, mut batches) = (0_u64, 0_u64, 0, 0_u64);
        let (start, start_thread) = (now_ns(), thread_ns());
        let end = start + time.as_nanos() as u64;
        let mut now = start;
        while now < end {
            let received = wire.receive(now, BATCH, &mut |_, frame| bytes += frame.len() as u64);
            let received = received.expect("a wire");
            let then = now_ns();
            if received > 0 {
                busy_ns += then - now;
                frames += received as u64;
                batches += 1;
            }
            let next = now + pause.as_nanos() as u64;
            now = then;
            while now < next {
                std::hint::spin_loop();
                now = now_ns();
            }
        }
        let thread = thread_ns() - start_thread;
        ends.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("a sender");
        assert_eq!(bytes, frames * FRAME_BYTES as u64, "each frame is whole");
        let seconds = (now - start) as f64 / 1e9;
        let each = |ns: u64| ns as f64 / frames as f64;
        println!("{:?}, {} sent, {:?}", wire.mode(), sent, wire.counters());
        println!(
            "{:.0} frames/s received, {:.1} in a batch",
            frames as f64 / seconds,
            frames as f64 / batches as f64
        );
        println!("{:.1} ns of calls that received something for each frame", each(busy_ns));
        println!("{:.1} ns of the thread for each frame, polling included", each(thread));
    });
}

/// Sends as fast as it can, and returns how many frames.
fn send(ends: &AtomicBool) -> u64 {
    pin(0).expect("processor 0");
    let mut links = Links::open().expect("netlink");
    links.set_up("peer0", Mac([2, 0, 0, 0, 1, 2]), 1500, &[]).expect("an interface");
    let mut socket = XdpSocket::open("peer0", &XdpOptions::default()).expect("a socket");
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&TO.0);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 1, 2, 8, 0]);
    let mut sent = 0;
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            sent += u64::from(socket.send(&[&frame], None).is_ok());
        }
        // Nothing more can be sent, if the interface at the other end is gone.
        let _ = socket.flush();
    }
    sent
}
