use std::time::Duration;

use host::Embedded;
use host::system::System;

use os::processor::now_ns;

use super::*;
use crate::ctc::Server;
use crate::line::{LineEnd, LineMedium, LineOptions};
use crate::{Guest, Wait};

/// Rounds in which everybody does what there is to do: enough for all that one packet needs.
const ROUNDS: usize = 100;

/// A line, with both ends and the server in one thread.
struct Scene {
    server: Server,
    ends: [Line; 2],
}

impl Scene {
    fn new(host: &Embedded) -> Scene {
        let guest = Guest::attach_embedded(host, "CTC").unwrap();
        let mut server = Server::new(guest, Wait::Block).unwrap();
        let names = ["LEFT", "RIGHT"].map(|name| name.parse().unwrap());
        server.add_line("line0", names[0], names[1]).unwrap();
        let options = LineOptions {
            medium: LineMedium::Ctc { server: "CTC".parse().unwrap() },
            name: Some("line0".parse().unwrap()),
            wait: Wait::Block,
            ..LineOptions::default()
        };
        let addresses = ["10.9.0.1", "10.9.0.2"].map(|address| address.parse().unwrap());
        let ends = [(0, 1), (1, 0)].map(|(own, peer)| {
            let guest = Guest::attach_embedded(host, names[own].as_str()).unwrap();
            let (address, peer_address) = (addresses[own], addresses[peer]);
            let end = LineEnd { partner: names[peer], address, peer_address };
            Line::new(guest, &end, &options).unwrap()
        });
        let mut scene = Scene { server, ends };
        for _ in 0..ROUNDS * ROUNDS {
            if scene.ends.iter().all(|line| line.terms().is_some()) {
                return scene;
            }
            scene.serve();
            for end in 0..2 {
                assert!(scene.receive(end).is_empty());
            }
        }
        panic!("the line does not come up: {:?}", scene.ends);
    }

    fn serve(&mut self) {
        self.server.serve_within(Duration::ZERO).unwrap();
    }

    /// Polls an end, and receives what has come: the first byte of what is in each packet.
    fn receive(&mut self, end: usize) -> Vec<u8> {
        self.ends[end].poll(now_ns()).unwrap();
        self.receive_only(end)
    }

    fn receive_only(&mut self, end: usize) -> Vec<u8> {
        let line = &mut self.ends[end];
        let mut buffer = line.take_buffer();
        let mut received = Vec::new();
        while let Some(mut message) = line.receive(now_ns(), &mut buffer) {
            while let Some((frame, _)) = line.next_packet(&mut message, &mut buffer, &mut 10) {
                received.push(buffer[frame][ETHERNET_BYTES + IP_BYTES]);
            }
        }
        line.give_back(buffer);
        line.flush();
        received
    }
}

const IP_BYTES: usize = 20;

/// A frame with a packet of one byte.
fn frame(byte: u8) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_BYTES];
    frame.extend([0x45, 0, 0, IP_BYTES as u8 + 1, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 9, 0, 1, 10, 9, 0, 2, byte]);
    frame
}

#[test]
fn packets_that_were_collected_go_when_a_look_for_blocks_finds_the_end_of_the_write() {
    let host = Embedded::start(System::open()).unwrap();
    let mut scene = Scene::new(&host);
    let [left, right] = [0, 1];
    scene.ends[left].send(&frame(1)).unwrap();
    scene.ends[left].send(&frame(2)).unwrap();
    scene.ends[left].flush();
    // The end is polled before the first block is through, and looks for blocks after that.
    scene.ends[left].poll(now_ns()).unwrap();
    let mut received = Vec::new();
    for _ in 0..ROUNDS {
        scene.serve();
        received.extend(scene.receive(right));
    }
    assert_eq!(received, [1]);
    assert!(scene.receive_only(left).is_empty());
    assert!(scene.ends[left].take_worked(), "the stack does not look again");
    assert!(!scene.ends[left].take_worked(), "twice");
    for _ in 0..ROUNDS {
        scene.serve();
        received.extend(scene.receive(right));
    }
    assert_eq!(received, [1, 2]);
}
