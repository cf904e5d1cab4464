//! A stack of TCP/IP facing members of its LAN that send what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::tcpip_frames(program));
