//! A bridge: two LANs that are one for their members, with a member in each.
//!
//! A member may send only from its own address, so that the bridge stands for those behind it: it answers for them in
//! the other LAN and puts its own address in front of what it passes on, as an adapter of a mainframe does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::thread;

use siga::host::{Embedded, Source, System};
use siga::lan::{Address, Lan, LanOptions, Mac, Offload};
use siga::{Guest, Wait, Waiter};

const SYSTEM: &str = r#"
[[guest]]
name = "*"

[[lan]]
name = "left"
range = "10.1.0.0/24"

[[lan]]
name = "right"
range = "10.2.0.0/24"
"#;

/// Frames of our own kind: a number for local experiments, the address of IP that they are for, and a text.
const KIND: [u8; 2] = [0x88, 0xb5];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Embedded::start(System::parse(&Source::of("bridge.toml", SYSTEM))?)?;
    let join =
        |name: &str, lan: &str, address: Address| -> Result<Lan, Box<dyn std::error::Error>> {
            let options = LanOptions { address, wait: Wait::Block, ..LanOptions::default() };
            Ok(Lan::join(Guest::attach_embedded(&host, name)?, lan, &options)?)
        };
    let mut alice = join("ALICE", "left", Address::Chosen)?;
    let mut bob = join("BOB", "right", Address::Chosen)?;
    let [left, right] = [("BRIDGE-L", "left"), ("BRIDGE-R", "right")]
        .map(|(name, lan)| join(name, lan, Address::None));
    let (left, right) = (left?, right?);
    let at_the_bridge = left.mac();
    let bridge = thread::spawn(move || bridge(left, right, 2).map_err(|error| error.to_string()));

    let for_bob = bob.addresses()[0];
    let for_alice = alice.addresses()[0];
    let alice = thread::spawn(move || -> Result<(), String> {
        let hello = frame(at_the_bridge, alice.mac(), for_bob, "hello");
        alice.send(Offload::NONE, &hello).map_err(|error| error.to_string())?;
        let answer = alice.receive().map_err(|error| error.to_string())?;
        println!("ALICE: {}", String::from_utf8_lossy(&answer.bytes[18..]));
        Ok(())
    });
    let received = bob.receive()?;
    println!("BOB: {}", String::from_utf8_lossy(&received.bytes[18..]));
    let back = Mac(*received.bytes[6..].first_chunk().expect("a frame has a source"));
    bob.send(Offload::NONE, &frame(back, bob.mac(), for_alice, "hello yourself"))?;
    alice.join().expect("it does not panic")?;
    Ok(bridge.join().expect("it does not panic")?)
}

/// Passes so many frames on, each to the member of the other LAN that has the address it is for.
fn bridge(left: Lan, right: Lan, mut left_over: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut waiter = Waiter::new(Wait::Block)?;
    let (left, right) = (waiter.add(left)?, waiter.add(right)?);
    let other = HashMap::from([(left, right), (right, left)]);
    while left_over > 0 {
        let (key, lan) = waiter.wait()?;
        let mut passed = Vec::new();
        while let Some(frame) = lan.try_receive()? {
            passed.push(frame.bytes.to_vec());
        }
        let there = waiter.get_mut(other[&key]).expect("both are served");
        for mut frame in passed {
            let Some(address) = frame.get(14..).and_then(|rest| rest.first_chunk::<4>()) else {
                continue;
            };
            let to = there.find_address(IpAddr::from(*address)).map(|member| member.mac);
            let Some(to) = to else { continue };
            frame[..6].copy_from_slice(&to.0);
            frame[6..12].copy_from_slice(&there.mac().0);
            there.send(Offload::NONE, &frame)?;
            left_over -= 1;
        }
    }
    Ok(())
}

/// A frame for an address of the other LAN.
fn frame(to: Mac, from: Mac, address: IpAddr, text: &str) -> Vec<u8> {
    let IpAddr::V4(address) = address else { unreachable!("both ranges are of IPv4") };
    [&to.0[..], &from.0, &KIND, &address.octets(), text.as_bytes()].concat()
}
