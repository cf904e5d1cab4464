//! A client of a TCPIP machine, facing a machine and other clients that say what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::tcpip_client(program));
