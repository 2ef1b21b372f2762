#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    werkruf::properties::chat_request(bytes);
});
