// SPDX-License-Identifier: Apache-2.0
// A line chart as SVG text: a few series over integers. Not a plotting library.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tinyloop {

struct SvgSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
};

struct SvgChart {
  std::string title, x_label, y_label;
  double line = 0.0;  // a horizontal line at this height
  std::vector<SvgSeries> series;

  std::string svg() const;  // a whole document
};

}  // namespace tinyloop
