"""Opens the page of a server in headless Chromium, and prints what a reader sees, as JSON.

Runs in an environment that has selenium: ``python page.py URL KEY SCREENSHOT``. It needs Debian's
packages chromium and chromium-driver, and nothing of this project.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

TEXTS = (
    "A man is eating food.",
    "Someone has a meal.",
    "<script>document.title = 'run'</script><b>bold</b> <img src=x onerror=alert(1)>",
    "word " * 400,
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip
SECONDS = 60.0


def open_browser(folder: str) -> Any:
    """Start Chromium with an empty profile; its console is kept."""
    webdriver = importlib.import_module("selenium.webdriver")
    service = importlib.import_module("selenium.webdriver.chrome.service")
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=service.Service("/usr/bin/chromedriver"))


def wait(driver: Any, condition: str) -> None:
    """Wait until an expression of JavaScript is true."""
    waiting = importlib.import_module("selenium.webdriver.support.ui")
    waiting.WebDriverWait(driver, SECONDS).until(
        lambda one: one.execute_script(f"return Boolean({condition})")
    )


def set_size(driver: Any, width: int, height: int) -> None:
    """Set the size of the page in pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def rows(driver: Any, place: str) -> list[list[str]]:
    """Return the cells of the rows below an element."""
    found: list[list[str]] = driver.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))",
        place,
    )
    return found


def main(url: str, key: str, screenshot: Path) -> None:
    """Enter the key, compare texts and rank documents."""
    with tempfile.TemporaryDirectory() as folder:
        driver = open_browser(folder)
        try:
            set_size(driver, 1000, 1200)
            driver.get(url)
            get = "document.getElementById"
            wait(driver, f"!{get}('keys').hidden")
            driver.execute_script(
                "const key = document.getElementById('key'); key.value = arguments[0];"
                "key.dispatchEvent(new Event('change'))",
                key,
            )
            wait(driver, f"!{get}('embedding').hidden && !{get}('ranking').hidden")
            driver.execute_script(f"{get}('texts').value = arguments[0]", "\n".join(TEXTS))
            for button in ("compare", "rank"):
                driver.execute_script(f"{get}('{button}').click()")
                wait(driver, f"{get}('{button}-note').textContent && !{get}('{button}').disabled")
            wait(driver, f"{get}('rates').textContent.includes('texts/s')")
            wide = {width: overflow(driver, width, screenshot) for width in (400, 1000)}
            print(
                json.dumps(
                    {
                        "matrix": rows(driver, "#matrix"),
                        "nearest": rows(driver, "#nearest"),
                        "ranked": rows(driver, "#ranked"),
                        "notes": driver.execute_script(
                            f"return [{get}('compare-note'), {get}('rank-note')]"
                            ".map((x) => x.textContent)"
                        ),
                        "tokens": driver.execute_script(
                            "return document.querySelector('#tokens li').textContent"
                        ),
                        "title": driver.title,
                        "images": driver.execute_script("return document.images.length"),
                        "console": [
                            entry["message"]
                            for entry in driver.get_log("browser")
                            # The first question is asked without a key.
                            if "401" not in entry["message"]
                        ],
                        "overflow": wide,
                    }
                )
            )
        finally:
            driver.quit()


def overflow(driver: Any, width: int, screenshot: Path) -> int:
    """Return the pixels that the page is wider than its window, and take its picture."""
    set_size(driver, width, 1200)
    height = driver.execute_script("return document.documentElement.scrollHeight")
    set_size(driver, width, height)
    driver.save_screenshot(str(screenshot))
    wider: int = driver.execute_script("return document.documentElement.scrollWidth") - width
    return wider


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
