//! An adapter, and two honest guests of it, facing a guest and a wire that bring what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::osa_adapter(program));
