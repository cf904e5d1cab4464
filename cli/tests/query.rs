//! `siga query tcpip`: what stacks show of themselves.

mod common;

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;

use serde_json::Value;
use siga::Guest;
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{self, Stack, StackOptions};

use common::{System, text};

fn stack(system: &System, name: &str) -> Stack {
    let guest = Guest::attach(system.file("siga.sock"), name).unwrap();
    let options = LanOptions { address: Address::Chosen, ..LanOptions::default() };
    Stack::new(Lan::join(guest, "hs0", &options).unwrap(), &StackOptions::default()).unwrap()
}

#[test]
fn stacks_are_shown_with_their_connections_and_sockets() {
    let system = System::start("query-tcpip");
    let (server, client) = (stack(&system, "SERVER"), stack(&system, "CLIENT"));
    let at = SocketAddr::new(server.addresses()[0], 80);
    let listener = tcpip::TcpListener::bind(&server, at).unwrap();
    let socket = tcpip::UdpSocket::bind(&server, SocketAddr::new(at.ip(), 53)).unwrap();
    let stream = tcpip::TcpStream::start_connecting(&client, at).unwrap();
    listener.set_nonblocking(true).unwrap();
    let accepted = loop {
        client.poll().unwrap();
        match listener.accept() {
            Ok((accepted, _)) => break accepted,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    let mut sent = 0;
    while sent < 3000 {
        match (&stream).write(&[7; 3000][sent..]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    // What has come is not read; that it has come is acknowledged.
    accepted.set_nonblocking(true).unwrap();
    while accepted.peek(&mut [0; 4000]).map_or(true, |count| count < 3000) {
        client.poll().unwrap();
        server.poll().unwrap();
    }
    // Both show how they stand before they would wait.
    for stack in [&server, &client] {
        stack.prepare_wait().unwrap();
    }
    let shown: Value =
        serde_json::from_slice(&system.run(&["query", "tcpip", "--json"]).stdout).unwrap();
    let members = shown["lans"][0]["members"].as_array().unwrap();
    let stack_of = |guest: &str| {
        let member = members.iter().find(|member| member["guest"] == guest).unwrap();
        member["stack"].clone()
    };
    let sockets = stack_of("SERVER")["sockets"].as_array().unwrap().clone();
    let found = |state: &str| sockets.iter().find(|socket| socket["state"] == state).unwrap();
    assert_eq!(found("listen")["local"], at.to_string());
    assert_eq!(found("udp")["local"], socket.local_addr().unwrap().to_string());
    let established = found("established");
    assert_eq!(established["remote"], stream.local_addr().unwrap().to_string());
    assert_eq!(established["receive_queue"], 3000);
    assert_eq!(stack_of("SERVER")["pool"]["in_use"], 1);
    let client_stack = stack_of("CLIENT");
    assert_eq!(client_stack["connections"], 1);
    assert_eq!(client_stack["counters"]["connected"], 1);
    assert!(client_stack["sockets"][0]["round_trip_ns"].as_u64().unwrap() > 0);

    let tables = text(&system.run(&["query", "tcpip"]).stdout).to_owned();
    for part in ["10.", "established", "listen", "udp", "3000", "connected 1", "time-wait"] {
        assert!(tables.contains(part), "{part} in:\n{tables}");
    }
    // Of one that has left nothing is shown.
    drop((accepted, listener, socket, server));
    drop((stream, client));
    let left = || text(&system.run(&["query", "tcpip"]).stdout).to_owned();
    while left().contains("established") {}
}
