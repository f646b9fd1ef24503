"""Write data/houses.csv: 2,000 houses with their prices, the same bytes at each call.

The price in thousands is 40 + area * rate of the district, plus 12 for each room, minus a loss of value with age, plus
40 for a garden in the centre only; then noise with a deviation of 12. Some areas and ages are missing.
"""

import csv
from pathlib import Path

import numpy as np

ROWS = 2000
RATE = {"centre": 3.2, "hill": 2.4, "harbour": 2.0, "suburb": 1.3}  # thousands per square metre
MISSING = {"area": 0.03, "age": 0.05}  # share of rows


def make_rows() -> list[dict[str, object]]:
    """The rows, with an empty text for a missing value."""
    rng = np.random.default_rng(2024)
    rows: list[dict[str, object]] = []
    for _ in range(ROWS):
        district = str(rng.choice(list(RATE), p=[0.2, 0.2, 0.2, 0.4]))
        area = round(float(rng.gamma(9.0, 11.0)) + 20.0, 1)
        rooms = int(np.clip(round(area / 27.0 + rng.normal(0.0, 0.7)), 1, 9))
        age, garden = int(rng.integers(0, 120)), int(rng.random() < 0.4)
        price = 40.0 + area * RATE[district] + 12.0 * rooms - 60.0 * (1.0 - np.exp(-age / 30.0))
        price += 40.0 * garden * (district == "centre") + rng.normal(0.0, 12.0)
        row: dict[str, object] = {"district": district, "area": area, "rooms": rooms, "age": age, "garden": garden}
        for column, share in MISSING.items():
            if rng.random() < share:
                row[column] = ""
        rows.append(row | {"price": f"{price:.1f}"})
    return rows


def main() -> None:
    """Write the file beside this script."""
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    rows = make_rows()
    with open(folder / "houses.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
