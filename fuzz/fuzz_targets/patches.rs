#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("patches"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::patches, bytes);
});
