//! Two stacks of TCP/IP that talk over a LAN that does with their frames what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::tcpip_conversation(program));
