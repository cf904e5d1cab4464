//! A member of a LAN that does nothing but count what it receives: what a member costs when it is idle.
//!
//! `member SOCKET LAN NAME` joins, says its address, and sleeps until it is ended.

use std::env;

use siga::lan::{Address, Lan, LanOptions};
use siga::{Guest, Wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [socket, lan, name] = &arguments[..] else {
        return Err("usage: member SOCKET LAN NAME".into());
    };
    let guest = Guest::attach(socket, name)?;
    let options =
        LanOptions { address: Address::Chosen, wait: Wait::Block, ..LanOptions::default() };
    let mut lan = Lan::join(guest, lan, &options)?;
    println!("{}", lan.addresses()[0]);
    for number in 1.. {
        let frame = lan.receive()?;
        println!("frame {number} has {} bytes", frame.bytes.len());
    }
    Ok(())
}
